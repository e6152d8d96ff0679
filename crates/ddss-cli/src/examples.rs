//! What stands under `--help` of each command, and in its manual page: lines that can be typed, and what they are for.

pub(crate) const DEMO: &str = "\
Examples:
  ddss demo          needs no daemon, leaves nothing behind
  ddss demo --json   what it showed, for scripts";

pub(crate) const PING: &str = "\
Examples:
  ddss ping
  ddss ping --dir /run/ddss   of the daemon in that folder";

pub(crate) const ALLOCATE: &str = "\
Examples:
  ddss allocate scores 4096
  ddss allocate scores 4096 --mode 640 --history 3
  ddss allocate rates 64 --model temporal=500   others may see it 500 µs late
  ddss allocate ledger 4096 --copies 2          a mirror, if its home dies
  ddss allocate queue 4096 --home 2             at home on node 2";

pub(crate) const LS: &str = "\
Examples:
  ddss ls
  ddss ls 'scores/*'   quoted, so that the shell leaves the star alone
  ddss ls --json | jq -r '.[].name'";

pub(crate) const STAT: &str = "\
Examples:
  ddss stat scores
  ddss stat scores --json";

pub(crate) const GET: &str = "\
Examples:
  ddss get scores --length 5           the first five bytes
  ddss get scores > file               all, up to 1 MiB; else `ddss export`
  ddss get load --as u64               as numbers
  ddss get load --as u64 --version 7   as they were in version 7, if it is kept
  ddss get config --as json --json     with version and time";

pub(crate) const PUT: &str = "\
Examples:
  ddss put scores hello
  echo hello | ddss put scores -         from a pipe
  ddss put load --as u64 '1 2 3'         three numbers, 24 bytes
  ddss put load --as f32 0.5 --offset 32
  ddss put scores again --if-version 7   only if nobody has put since";

pub(crate) const HEXDUMP: &str = "\
Examples:
  ddss hexdump scores
  ddss hexdump scores --offset 4096 --length 64";

pub(crate) const WATCH: &str = "\
Examples:
  ddss watch scores                  a line for each version; Ctrl-C ends it
  ddss watch load --as u64 --length 24
  ddss watch load --count 3 --json   three lines for a script";

pub(crate) const HISTORY: &str = "\
Examples:
  ddss history scores   the versions that are kept, the newest first
  ddss history scores --length 64";

pub(crate) const EXPORT: &str = "\
Examples:
  ddss export scores scores.bin

A segment of more than 1 MiB is read in parts. If somebody puts meanwhile, the
file holds parts of several versions: then it says so and exits with 1.";

pub(crate) const IMPORT: &str = "\
Examples:
  ddss import scores scores.bin   made if it is not there, as large as the file

It holds the segment's lock until the last byte is in.";

pub(crate) const CHMOD: &str = "\
Examples:
  ddss chmod 640 scores   the owner reads and writes, the group reads";

pub(crate) const LOCKS: &str = "\
Examples:
  ddss locks                  who holds what, for how long yet, who waits
  ddss locks 'scores/*'
  ddss locks scores --break   after a question: its holder hangs";

pub(crate) const DOCTOR: &str = "\
Examples:
  ddss doctor   exit code 1 if something has to be done
  ddss doctor --json | jq '.[] | select(.state != \"good\")'";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  ddss completions bash > ~/.local/share/bash-completion/completions/ddss
  ddss completions zsh > ~/.zfunc/_ddss
  ddss completions fish --of ddssd > ~/.config/fish/completions/ddssd.fish";

pub(crate) const RELEASE: &str = "\
Examples:
  ddss release scores
  ddss release 'scores/*'         shows what that is, and asks
  ddss release 'scores/*' --yes   does not ask";

pub(crate) const STATUS: &str = "\
Examples:
  ddss status   also of a daemon that is dead
  ddss status --json";

pub(crate) const COUNTERS: &str = "\
Examples:
  ddss counters   all that are not zero
  ddss counters 'lock*' --all
  ddss counters --json | jq .operations.get";

pub(crate) const CLIENTS: &str = "\
Examples:
  ddss clients";

pub(crate) const TOP: &str = "\
Examples:
  ddss top                 q leaves, p pauses, arrows scroll the segments
  ddss top --once | less   two looks, a second apart, as text
  ddss top --json          the same for scripts

Of a daemon that is dead it shows what its page said last. Gets that a client
reads in place do not come to the daemon, and are not counted.";

pub(crate) const TRACE: &str = "\
Examples:
  ddss trace scores   a get of 8 bytes, step by step
  ddss trace scores --call put --bytes 4096
  ddss trace          the last call of anybody that was followed";

pub(crate) const BENCH: &str = "\
Examples:
  ddss bench                      on two nodes of its own
  ddss bench --plot figures.svg   and as a picture
  ddss bench --dir /run/ddss      on a daemon, and one more of its cluster

On fewer cores than three the nodes and the client share them, and a call to
the other node waits for its turn.";

pub(crate) const NODES: &str = "\
Examples:
  ddss nodes   who leads and votes, and who is alive";

pub(crate) const CLUSTER: &str = "\
Examples:
  ddss cluster init                   on the first node, before ddssd starts
  ddss cluster token                  there: the word that lets others in
  ddss cluster join 10.0.0.1:7400 -   elsewhere, that word on standard input
  ddss cluster status";

pub(crate) const CLUSTER_INIT: &str = "\
Examples:
  ddss cluster init
  ddssd --listen 10.0.0.1:7400   then: the first node of the cluster";

pub(crate) const CLUSTER_TOKEN: &str = "\
Examples:
  ddss cluster token
  ddss cluster token | ssh other ddss cluster join 10.0.0.1:7400 -";

pub(crate) const CLUSTER_JOIN: &str = "\
Examples:
  ddss cluster join 10.0.0.1:7400 -   the token comes on standard input
  ddssd --listen 10.0.0.2:7400        then: it joins as it starts";

pub(crate) const CLUSTER_LEAVE: &str = "\
Examples:
  ddss cluster leave           for good; says no if a segment is only here
  ddss cluster leave --force   then such segments go with it

A segment with a mirror in step (`ddss stat`) is at home there from then on.
It takes some 3 s while this node has one.";

pub(crate) const CLUSTER_REMOVE: &str = "\
Examples:
  ddss cluster remove 3           node 3 is broken and will not come back
  ddss cluster remove 3 --force   also if it is alive: it ends by itself

The number is not given again. A node that returns under it ends by itself, and
joins anew with an empty state folder.";

pub(crate) const CLUSTER_STATUS: &str = "\
Examples:
  ddss cluster status   one sentence; `ddss nodes` is the table";
