package traffic

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package traffic -output-stem traffic -target bpfel -type seen object bpf/traffic.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
//go:generate sh -c "go tool bpf2go -no-global-types -go-package traffic -output-stem timed -target bpfel -type arrival timed bpf/timed.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
