package signs

// The target takes what the programs have in common with the kernel from its BTF.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package signs -output-stem signs -target bpfel object ../../bpf/signs.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
