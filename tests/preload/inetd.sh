# inetd: programs that know nothing of sockets, each with a connection as its standard input and output. inetd exchanges no byte before
# it starts them, so these connections stay on TCP. LIBRARY is the preload library, or empty.
. tests/preload/common
PATH=$PATH:/usr/sbin
needs inetd socat sort rev sed
cat >"$folder/inetd.conf" <<EOT
127.0.0.1:$port stream tcp nowait root /usr/bin/sort sort -n
127.0.0.1:$second stream tcp nowait root /usr/bin/rev rev
127.0.0.1:$third stream tcp nowait root /usr/bin/sed sed s/line/row/
EOT
start inetd -i "$folder/inetd.conf"
for each in $port $second $third; do soon listens $each; done
seq ${LINES_SENT:-20000} | sed 's/$/ line/' | sort -R >"$folder/sent"
sort -n "$folder/sent" >"$folder/$port"
rev "$folder/sent" >"$folder/$second"
sed s/line/row/ "$folder/sent" >"$folder/$third"
for round in 1 2 3; do
    for each in $port $second $third; do
        with socat -t 60 - TCP:127.0.0.1:$each <"$folder/sent" | cmp - "$folder/$each"
    done
done
echo "9 answers of sort, rev and sed equal"
