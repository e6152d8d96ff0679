# ssh: a program at the far end, and a forwarded port, both in bulk. sshd executes itself anew for each connection. LIBRARY is the preload library, or empty.
. tests/preload/common
PATH=$PATH:/usr/sbin
needs sshd ssh ssh-keygen socat
for name in host user; do ssh-keygen -q -t ed25519 -N '' -f "$folder/$name"; done
cp "$folder/user.pub" "$folder/keys"
cat >"$folder/sshd_config" <<EOT
Port $port
ListenAddress 127.0.0.1
HostKey $folder/host
AuthorizedKeysFile $folder/keys
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
EOT
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
start "$(command -v sshd)" -D -e -f "$folder/sshd_config" 2>"$folder/log"
head -c ${BULK:-20000000} /dev/urandom >"$folder/sent"
start socat -t 60 TCP-LISTEN:$second,bind=127.0.0.1,fork,reuseaddr EXEC:cat
soon listens $port
soon listens $second
options=(-F /dev/null -i "$folder/user" -p $port -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR 127.0.0.1)
watch
with ssh "${options[@]}" cat <"$folder/sent" | cmp - "$folder/sent" || { cat "$folder/log"; exit 1; }
[ "$(with ssh "${options[@]}" 'echo $((6 * 7)); exit 3'; echo $?)" = "42
3" ]
start ssh -N -L 127.0.0.1:$third:127.0.0.1:$second "${options[@]}"
soon listens $third
for i in 1 2 3; do with socat -b 131072 -t 60 - TCP:127.0.0.1:$third <"$folder/sent" | cmp - "$folder/sent" & jobs[i]=$!; done
for i in 1 2 3; do wait ${jobs[i]}; done
shared ${SHARED-ssh socat}
echo "4 transfers of 20 MB equal, three by the forwarded port"
