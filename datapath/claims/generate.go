package claims

//go:generate sh -c "go tool bpf2go -no-global-types -type binder -type claim -type port -go-package claims -output-stem claims -target bpfel object ../bpf/claims.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
