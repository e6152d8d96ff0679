divert(-1)
# The macros of PARMACS on ddss_dsm.h: m4 parmacs.m4 program.C > program.c
#
# ddss dsm run -n 4 --same-addresses -- ./program starts as many processes as the program uses. CREATE gives them the variables of the
# program as they are then; memory of malloc is not shared. Link the shared library: the variables of a static one would be among them.

define(MAIN_ENV, `#include <ddss_parmacs.h>')
define(EXTERN_ENV, `#include <ddss_parmacs.h>')
define(MAIN_INITENV, `ddss_parmacs_begin();')
define(MAIN_END, `ddss_parmacs_end();')

# With two arguments as in Splash-3: the function runs on all of so many processes, this one included.
define(CREATE, `ifelse($2, , `ddss_parmacs_create($1);', `{
    long parmacs_count_;
    for (parmacs_count_ = 1; parmacs_count_ < ($2); parmacs_count_++) {
        ddss_parmacs_create($1);
    }
    $1();
}')')
define(WAIT_FOR_END, `ddss_parmacs_check("the wait for the end", ddss_dsm_await_ends());')

define(LOCKDEC, `unsigned $1;')
define(LOCKINIT, `($1) = ddss_parmacs_new_lock();')
define(LOCK, `ddss_parmacs_check("a lock", ddss_dsm_lock($1));')
define(UNLOCK, `ddss_parmacs_check("an unlock", ddss_dsm_unlock($1));')

define(ALOCKDEC, `unsigned $1[$2];')
define(ALOCKINIT, `{
    long parmacs_lock_;
    for (parmacs_lock_ = 0; parmacs_lock_ < ($2); parmacs_lock_++) {
        ($1)[parmacs_lock_] = ddss_parmacs_new_lock();
    }
}')
define(ALOCK, `ddss_parmacs_check("a lock", ddss_dsm_lock(($1)[$2]));')
define(AULOCK, `ddss_parmacs_check("an unlock", ddss_dsm_unlock(($1)[$2]));')
define(AUNLOCK, `AULOCK($1, $2)')

define(BARDEC, `int $1;')
define(BARINIT, `($1) = 0;')
define(BARRIER, `ddss_parmacs_barrier($2);')

define(G_MALLOC, `ddss_dsm_malloc($1)')
define(G_FREE, `ddss_parmacs_check("a free", ddss_dsm_free($1));')
define(NU_MALLOC, `ddss_dsm_malloc($1)')
define(CLOCK, `($1) = ddss_parmacs_clock();')
divert(0)dnl
