# Open MPI over TCP: three ranks, a ring and sums. LIBRARY is the preload library, or empty.
. tests/preload/common
needs mpirun mpicc
mpicc -O2 -o "$folder/ranks" tests/preload/openmpi.c
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$folder
watch
with mpirun --oversubscribe --mca btl tcp,self --mca btl_tcp_if_include lo --mca pml ob1 ${LIBRARY:+-x LD_PRELOAD} -n 3 "$folder/ranks" 60 >"$folder/said"
grep -x '0 wrong words after 60 rounds of 3 ranks' "$folder/said"
shared ranks
