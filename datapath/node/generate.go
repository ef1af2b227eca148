package node

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package node -output-stem node -target bpfel -type settings -type node_traffic -type fastpath_time -type fastpath_use -type udp_port -type udp_peers -type meter object ../bpf/node.c -- -ffreestanding -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
