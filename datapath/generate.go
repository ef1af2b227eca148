package datapath

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package datapath -output-stem datapath -target bpfel -type mode -type reason -type port -type punt -type counters -type traffic -type punted -type leg -type router -type tunnel_kind -type tunnel -type end -type encapsulation -type uplink -type underlay -type meter -type rule -type classifier -type label_classifier -type note_kind -type note -type udp_name -type udp_owner -type label_key -type nhlfe -type reservation -type early -type best_effort -type label_edit -type unwalked object bpf/datapath.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
