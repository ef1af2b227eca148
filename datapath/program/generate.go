package program

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package program -output-stem stages -target bpfel -type program_input -type program_outcome -type program_filter -type program_record -type program_frame -type program_fault -type program_stage -type pergola_packet -type pergola_result -type pergola_verdict stages ../bpf/program.c -- -ffreestanding -fno-strict-aliasing -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(uname -m)-linux-gnu"
