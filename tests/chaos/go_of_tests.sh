PATH=/usr/bin:/bin
[ "$1" = install ] || exit 1
for module; do :; done
mkdir -p "$GOBIN" "$GOPATH/pkg/mod" "$GOCACHE"
echo "$module" >> {log}
sleep 0.2
printf '#!/bin/sh\necho built\n' > "$GOBIN/server"
chmod 755 "$GOBIN/server"
