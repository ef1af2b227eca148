/* want:  */
/* Its key is what follows the Ethernet header; the first byte says in which table it is looked up. */
#include <pergola/program.h>

struct bytes {
	uint8_t byte[PERGOLA_KEY_SIZE];
};

PERGOLA_KEY {
	struct bytes all;
};

PERGOLA_PARSE(packet)
{
	pergola_key(packet)->all = *pergola_header(packet, 14, struct bytes);
	packet->table = *pergola_header(packet, 14, uint8_t);
	packet->miss = PERGOLA_SEND;
	return PERGOLA_LOOKUP;
}
