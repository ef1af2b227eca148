package node

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package node -output-stem node -target bpfel -type settings -type node_traffic object ../bpf/node.c -- -ffreestanding -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
