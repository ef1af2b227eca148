/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* flood: a program that takes about two microseconds for each frame, and sends it on by the other interface. */
#include <pergola/program.h>

PERGOLA_PARSE(packet)
{
	for (int i = 0; i < 6000; i++)
		asm volatile("");
	packet->output = 3 - packet->interface;
	return PERGOLA_SEND;
}
