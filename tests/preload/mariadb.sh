# MariaDB: a server of a user of its own, whom a rule allows, with mysqlslap and mysqldump. LIBRARY is the preload library, or empty.
. tests/preload/common
PATH=$PATH:/usr/sbin
needs mariadbd mariadb-install-db mariadb mariadb-slap mariadb-dump setpriv
[ "$(id -u)" = 0 ] || { echo "not root: the server gets no user of its own"; exit 77; }
mkdir "$folder/data"
chown nobody "$folder/data"
printf 'allow listen mariadbd root\nallow connect mariadb* nobody\n' >"$folder/rules"
chmod 644 "$folder/rules"
export DDSS_STREAMS_RULES=$folder/rules
server=(setpriv --reuid nobody --regid nogroup --clear-groups env HOME="$folder")
"${server[@]}" mariadb-install-db --no-defaults --datadir="$folder/data" --auth-root-authentication-method=normal --skip-test-db >"$folder/log" 2>&1
# With its ring of io_uring for files the server would stay on TCP.
"${server[@]}" ${LIBRARY:+LD_PRELOAD=$LIBRARY} mariadbd --no-defaults --datadir="$folder/data" --port=$port --bind-address=127.0.0.1 --skip-name-resolve \
    --innodb-use-native-aio=0 --socket="$folder/data/socket" --innodb-flush-log-at-trx-commit=0 --max-allowed-packet=64M 2>>"$folder/log" & running+=($!)
soon listens $port || { tail "$folder/log"; exit 1; }
tcp=(--no-defaults --host=127.0.0.1 --port=$port --protocol=tcp --user=root)
ask() { with mariadb "${tcp[@]}" --skip-ssl -N -e "$1" 2>&1; }
ask "create database a; create table a.sums (number int primary key auto_increment, word bigint) engine innodb"
watch
with mariadb-slap "${tcp[@]}" --create-schema=a --no-drop --concurrency=8 --number-of-queries=4000 --delimiter=';' \
    --query="insert into a.sums (word) values (connection_id()); select count(*) from a.sums where number < 50" >>"$folder/log"
ask "select count(*) from a.sums" | grep -qx 2000
[ "$(ask "select repeat('x', 6000000)" | wc -c)" = 6000001 ]
with mariadb-dump "${tcp[@]}" --skip-comments a >"$folder/dump"
ask "create database b"
with mariadb "${tcp[@]}" b <"$folder/dump"
with mariadb-dump "${tcp[@]}" --skip-comments b | cmp - "$folder/dump"
shared mariadbd mariadb-slap
echo "2000 rows equal after a dump and its return, by a rule for another user"
