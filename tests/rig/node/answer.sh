#!/bin/sh
# Answers one call from the host on standard input and output, which are its connection. In: a line with the lengths of the
# command and of its input and with the seconds that it may take, then both. Out: a line with the exit status and the lengths
# of what was printed, then both.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
read -r command input seconds || exit
folder=$(mktemp -d /run/call.XXXXXX)
head -c "$command" >"$folder/command"
head -c "$input" >"$folder/input"
cd /root
timeout -k 1 "$seconds" sh "$folder/command" <"$folder/input" >"$folder/out" 2>"$folder/err"
status=$?
# Processes left behind may print on: what was there at the end counts.
out=$(stat -c %s "$folder/out")
err=$(stat -c %s "$folder/err")
echo "$status $out $err"
head -c "$out" "$folder/out"
head -c "$err" "$folder/err"
rm -r "$folder"
