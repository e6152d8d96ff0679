//! Examples in the help and the manual page of each command.

pub(crate) const DEMO: &str = "\
Examples:
  ddss demo          needs no daemon, leaves no files
  ddss demo streams  unmodified programs over TCP and through shared memory
  ddss demo dsm      shared pages of four processes, one of which is killed
  ddss demo river    messages for four processes: one is slow, one is killed
  ddss demo --json   its results, for scripts";

pub(crate) const PING: &str = "\
Examples:
  ddss ping
  ddss ping --dir /run/ddss   the daemon in that folder";

pub(crate) const ALLOCATE: &str = "\
Examples:
  ddss allocate scores 4096
  ddss allocate scores 4096 --mode 640 --history 3
  ddss allocate rates 64 --model temporal=500   reads may be 500 µs old
  ddss allocate ledger 4096 --copies 2          with a replica
  ddss allocate queue 4096 --home 2             its home is node 2
  ddss allocate users 64000 --row 64            a table of 1000 rows";

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
  ddss get scores > file               all of it, up to 2 GiB
  ddss get load --as u64               as numbers
  ddss get load --as u64 --version 7   version 7, if in the history
  ddss get config --as json --json     with version and time";

pub(crate) const PUT: &str = "\
Examples:
  ddss put scores hello
  echo hello | ddss put scores -         from a pipe
  ddss put load --as u64 '1 2 3'         three numbers, 24 bytes
  ddss put load --as f32 0.5 --offset 32
  ddss put scores again --if-version 7   only if it is still version 7";

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
  ddss history scores   the old versions, the newest first
  ddss history scores --length 64";

pub(crate) const EXPORT: &str = "\
Examples:
  ddss export scores scores.bin   with its kind in scores.bin.segment.json

A segment of more than 1 MiB is read in parts. If a client puts meanwhile, the
file holds parts of several versions: the command reports it and exits with 1.";

pub(crate) const IMPORT: &str = "\
Examples:
  ddss import scores scores.bin   allocated if it does not exist: as it was
                                  exported, or plain without a .segment.json

The command holds the segment's lock until the last byte is written.";

pub(crate) const CHMOD: &str = "\
Examples:
  ddss chmod 640 scores   the owner reads and writes, the group reads";

pub(crate) const LOCKS: &str = "\
Examples:
  ddss locks                  holders, lease times and waiters
  ddss locks 'scores/*'
  ddss locks scores --break   asks first; for a holder that hangs";

pub(crate) const DOCTOR: &str = "\
Examples:
  ddss doctor   exit code 1 if a check fails
  ddss doctor --json | jq '.[] | select(.state != \"good\")'";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  ddss completions bash > ~/.local/share/bash-completion/completions/ddss
  ddss completions zsh > ~/.zfunc/_ddss
  ddss completions fish --of ddssd > ~/.config/fish/completions/ddssd.fish";

pub(crate) const RELEASE: &str = "\
Examples:
  ddss release scores
  ddss release 'scores/*'         lists the matches, and asks
  ddss release 'scores/*' --yes   does not ask";

pub(crate) const STATUS: &str = "\
Examples:
  ddss status   works after the daemon has ended, too
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
  ddss top                 q quits, p pauses, arrows scroll the segments
  ddss top --once | less   the rates of one second, as text
  ddss top --json          the same for scripts

After the daemon has ended, the view shows its last status. Local reads bypass
the daemon and are not counted.";

pub(crate) const TRACE: &str = "\
Examples:
  ddss trace scores   a get of 8 bytes, step by step
  ddss trace scores --call put --bytes 4096
  ddss trace          the last traced call of any client";

pub(crate) const BENCH: &str = "\
Examples:
  ddss bench                      starts two nodes
  ddss bench --plot figures.svg   with a chart
  ddss bench --dir /run/ddss      a daemon and another node of its cluster

With fewer than three cores the nodes and the client share them, and a remote
call includes the time until its node runs.";

pub(crate) const RUN: &str = "\
Examples:
  ddss run -- redis-server --port 6379
  ddss run -- redis-benchmark -t get,set   both have it: shared memory
  ddss run --rules streams.rules -- nginx

A connection uses shared memory if both of its programs run so, under one user.
All others stay plain TCP, or go on the wire if a rule of both sides says so.
Static, setuid and Go programs stay on TCP.";

pub(crate) const STREAMS: &str = "\
Examples:
  ddss streams
  ddss streams --json | jq -r '.[].reason'";

pub(crate) const NODES: &str = "\
Examples:
  ddss nodes   leader, voters and live nodes";

pub(crate) const MAP: &str = "\
Examples:
  ddss map allocate users 1000 --key-bytes 16 --value-bytes 64
  ddss map put users alice 'likes tea'
  ddss map get users alice
  ddss map ls users

A map that a program allocated is shown, too: give the formats of its types,
as in `ddss map get stock 4711 --key-as u64 --as u32`.";

pub(crate) const MAP_ALLOCATE: &str = "\
Examples:
  ddss map allocate users 1000 --key-bytes 16 --value-bytes 64
  ddss map allocate stock 1M --key-bytes 8 --value-bytes 8 --home 2

It is a table: `ddss stat`, `ddss chmod` and `ddss release` take its name.";

pub(crate) const MAP_GET: &str = "\
Examples:
  ddss map get users alice
  ddss map get stock 4711 --key-as u64 --as u64   numbers
  ddss map get users alice --json                 hex, without --as";

pub(crate) const MAP_PUT: &str = "\
Examples:
  ddss map put users alice 'likes tea'
  ddss map put users bob hello --new          only if the key is absent
  ddss map put sessions 17 ann --expire 600   gone after ten minutes
  ddss map put stock 4711 12 --key-as u64 --as u64";

pub(crate) const MAP_REMOVE: &str = "\
Examples:
  ddss map remove users alice   exit code 1 if there is no such key";

pub(crate) const MAP_LS: &str = "\
Examples:
  ddss map ls users                one line an entry: key, tab, value
  ddss map ls users --prefix al    keys that begin so
  ddss map ls stock --key-as u64 --as u64 --json

Entries that change meanwhile may be missing, or not.";

pub(crate) const MAP_WATCH: &str = "\
Examples:
  ddss map watch users alice             a line for each value; Ctrl-C ends it
  ddss map watch users alice --count 2   the present one and the next

Values that follow each other quickly may be merged into one line.";

pub(crate) const CLUSTER: &str = "\
Examples:
  ddss cluster init                   on the first node, before ddssd starts
  ddss cluster token                  there: prints the token for other nodes
  ddss cluster join 10.0.0.1:7400 -   elsewhere, token on standard input
  ddss cluster status";

pub(crate) const CLUSTER_INIT: &str = "\
Examples:
  ddss cluster init
  ddssd --listen 10.0.0.1:7400   then start the first node";

pub(crate) const CLUSTER_TOKEN: &str = "\
Examples:
  ddss cluster token
  ddss cluster token | ssh other ddss cluster join 10.0.0.1:7400 -";

pub(crate) const CLUSTER_JOIN: &str = "\
Examples:
  ddss cluster join 10.0.0.1:7400 -   reads the token from standard input
  ddssd --listen 10.0.0.2:7400        then start the node, which joins";

pub(crate) const CLUSTER_LEAD: &str = "\
Examples:
  ddss cluster lead 2   before node 1, the leader, is taken down

The node must vote (`ddss nodes`). A leader hands over by itself as it ends.";

pub(crate) const CLUSTER_LEAVE: &str = "\
Examples:
  ddss cluster leave           refused if a segment exists only here
  ddss cluster leave --force   such segments are lost

A segment with a replica in sync (`ddss stat`) moves its home there. This
takes about 3 s while the node has such a segment.";

pub(crate) const CLUSTER_REMOVE: &str = "\
Examples:
  ddss cluster remove 3           node 3 is broken and will not come back
  ddss cluster remove 3 --force   also if it is alive: it ends by itself

The number is not given again. A node that returns under it ends by itself, and
joins anew with an empty state folder.";

pub(crate) const CLUSTER_SNAPSHOT: &str = "\
Examples:
  ddss cluster snapshot /backup/tuesday
  ddss cluster snapshot /backup/some --only 'score*'

A segment is stored whole at one version, a table row by row. Code 1 names the
segments that could not be read; the file holds the others.";

pub(crate) const CLUSTER_RECOVER: &str = "\
Examples:
  ddss cluster recover          what lives here? Its daemon is stopped
  ddss cluster recover --yes    on the survivor whose log ends last
  ddss cluster recover --join 10.0.0.1:7400 --yes   on each other survivor

Only when most voters will not come back. Nodes of the former cluster are
refused when they return. Run it as the user of the daemon.";

pub(crate) const CLUSTER_RESTORE: &str = "\
Examples:
  ddss cluster restore /backup/tuesday --check   is the file whole?
  ddss cluster restore /backup/tuesday           into an empty cluster
  ddss cluster restore /backup/tuesday --skip-existing
  ddss cluster restore /backup/tuesday --only 'score*'

Start programs afterwards: they would see segments that are still empty. An
interrupted restore is continued with --skip-existing.";

pub(crate) const CLUSTER_STATUS: &str = "\
Examples:
  ddss cluster status   one sentence; `ddss nodes` is the table";

pub(crate) const DSM: &str = "\
Examples:
  ddss dsm run -n 4 -- ./heat   four ranks on this node
  ddss dsm ls                   spaces, and how many of their ranks live";

pub(crate) const DSM_RUN: &str = "\
Examples:
  ddss dsm run -n 4 -- ./heat
  ddss dsm run -n 4 --protocol async -- ./heat 1024
  ddss dsm run -n 4 --space heat --restart 3 -- ./heat
  ddss dsm run -n 4 --check -- ./heat 64   with a small problem: it is slower
  ddss dsm run -n 4 --space heat --ranks 0-1 --listen 10.0.0.1 -- ./heat
  ddss dsm run -n 4 --space heat --ranks 2-3 --listen 10.0.0.2 -- ./heat

The third starts all ranks again when one fails, up to three times. A program
that writes checkpoints goes on from the last complete one; so does the same
command later, unless the run ended well.

--check looks for accesses of two ranks to one byte that no barrier, lock or
semaphore orders, one of them a write. Reads are those of views, writes are
changed bytes. It prints each with region and elements, and exits with 1.

The last two run on the nodes with these addresses. When a rank fails, the
others end with an error that names it, within 10 s, and so does this command.
Ctrl-C ends all of them. Ranks have no standard input.";

pub(crate) const DSM_LS: &str = "\
Examples:
  ddss dsm ls
  ddss dsm ls --json";

pub(crate) const DSM_TOP: &str = "\
Examples:
  ddss dsm top
  ddss dsm top heat --pages   which pages cost most, and whose they are
  watch ddss dsm top

Each rank publishes its counts twice a second. A page that several ranks write
between two barriers is false sharing, unless they write the same elements.";

pub(crate) const DSM_RM: &str = "\
Examples:
  ddss dsm rm heat           after all ranks have ended; its checkpoint too
  ddss dsm rm heat --force   its ranks go on without a name";

pub(crate) const RIVER: &str = "\
Examples:
  ddss river units add thumbnails *.png
  ddss river units work thumbnails -- convert {} -resize 200 {}.thumb
  ddss river take lines -- ./parse   beside: ddss river put lines < file";

pub(crate) const RIVER_LS: &str = "\
Examples:
  ddss river ls
  ddss river ls --json | jq -r '.[].name'";

pub(crate) const RIVER_RUN: &str = "\
Examples:
  ddss river run tokens -n 4 -- ./tokens
  ddss river run tokens -n 2 --of 4 --listen 10.0.0.1 -- ./tokens
  ddss river run tokens -n 4 --resume -- ./tokens

Each process finds the name of the flow in DDSS_RIVER_FLOW, and the number of
processes that begin it in DDSS_RIVER_PROCESSES. The flow goes on without a
process that is killed, unless a source or data is lost with it.";

pub(crate) const RIVER_DOT: &str = "\
Examples:
  ddss river dot tokens | dot -Tsvg > tokens.svg";

pub(crate) const RIVER_CANCEL: &str = "\
Examples:
  ddss river cancel tokens

Members that live end with an error; repeat the command to remove the names.";

pub(crate) const RIVER_SHOW: &str = "\
Examples:
  ddss river show lines
  ddss river show lines --json | jq '.members[].taken_per_s'

Each member publishes its counts twice a second.";

pub(crate) const RIVER_TOP: &str = "\
Examples:
  ddss river top
  watch ddss river top tokens   the edges of a flow

Each member publishes its counts twice a second. On average BUSY messages are
in work, BLOCKED calls wait for room, and IDLE calls wait for a message.";

pub(crate) const RIVER_PUT: &str = "\
Examples:
  ddss river put lines < file          a message a line
  ddss river put images *.png          a message a file
  ddss river put lines --close < file  then the consumers end

It ends when consumers have processed all messages, which stay here until then.";

pub(crate) const RIVER_TAKE: &str = "\
Examples:
  ddss river take lines                prints the messages, a line each
  ddss river take lines -- ./parse     runs a program for each one
  ddss river take lines --count 10

Exit code 0 of the program acknowledges the message. Else another consumer gets
it; the third time it has failed, and the producer reports it.";

pub(crate) const RIVER_UNITS: &str = "\
Examples:
  ddss river units add thumbnails *.png
  ddss river units work thumbnails -j 4 -- convert {} -resize 200 {}.thumb
  ddss river units ls thumbnails --state failed
  ddss river units retry thumbnails";

pub(crate) const RIVER_UNITS_ADD: &str = "\
Examples:
  ddss river units add thumbnails one.png two.png
  find . -name '*.png' | ddss river units add thumbnails   a line a unit
  ddss river units add thumbnails --copies 2 < list        survives each node

All units are added, or none. `ddss release river/NAME/units` ends the list.";

pub(crate) const RIVER_UNITS_WORK: &str = "\
Examples:
  ddss river units work thumbnails -- convert {} -resize 200 {}.thumb
  ddss river units work thumbnails -j 4 -- ./resize   reads the unit from stdin
  ddss river units work thumbnails --json -- ./resize {} | jq .outcome

Start it as often as you like, on any node: it ends when every unit is done or
failed. A unit fails when its program ends with another code than 0 three
times; a killed worker counts, too. Ctrl-C ends the programs, and gives their
units back. DDSS_UNIT and DDSS_UNIT_ATTEMPT have the number of the unit and of
the attempt.";

pub(crate) const RIVER_UNITS_LS: &str = "\
Examples:
  ddss river units ls thumbnails
  ddss river units ls thumbnails --state failed
  ddss river units ls thumbnails --json | jq -r '.[].content'";

pub(crate) const RIVER_UNITS_RETRY: &str = "\
Examples:
  ddss river units retry thumbnails";

pub(crate) const RIVER_SERVE: &str = "\
Examples:
  ddss river serve /var/lib/ddss-files
  ddss river serve /data --listen 10.0.0.1   reached from other nodes
  ddss river serve /data --copies 2          the first server decides

Started again over the directory, it has the same parts.";

pub(crate) const RIVER_LOAD: &str = "\
Examples:
  ddss river load pages pages.db
  zstd -c pages.db | ddss river load pages.zst --copies 2

It needs two file servers: `ddss river serve`. The collection appears when it
is complete. `ddss release river/files/NAME` removes it, but not its files.";

pub(crate) const RIVER_CAT: &str = "\
Examples:
  ddss river cat pages --into pages.db
  ddss river cat pages.zst | zstd -d | wc -l

It goes on while one server of each part lives. A file is written at the pace
of both mirrors together, a stream at the pace of the slower one.";

pub(crate) const RIVER_FILES: &str = "\
Examples:
  ddss river files
  ddss river files --json | jq -r '.[].collection'";

pub(crate) const RIVER_REPAIR: &str = "\
Examples:
  ddss river repair pages   after a disk or a node was lost

A part goes to two file servers that are there, its own ones first.";

pub(crate) const RIVER_VERIFY: &str = "\
Examples:
  ddss river verify pages   exit code 1 if a mirror is damaged or away";
