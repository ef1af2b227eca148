/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * video: a wire from interface 1 (sources) to interface 2 (a link that may be too slow), whose filters choose queues by
 * what a packet carries of a video: MPEG-2 transport streams (ISO/IEC 13818-1) over RTP (RFC 3550, RFC 2250) over UDP
 * and IPv4.
 *
 *	priority 1 broken=1 -> drop			nobody can decode it
 *	priority 1 frame=0/7 -> send 2 queue 1		what is no video (0), and key frames (1)
 *	priority 1 frame=2/7 -> send 2 queue 2		the first two difference frames after a key frame (2, 3)
 *	any -> send 2 queue 3				later ones, on which fewer frames depend
 *
 * What no filter matches takes queue 0. What comes by interface 2 leaves by 1 as it came.
 *
 * A frame begins where a PES packet of video does: a key frame if the adaptation field has random_access_indicator,
 * and a difference frame if not. Packets of that PID which follow belong to it. Only the first TS packet of an RTP
 * packet is looked at, as the window ends in the second one, so a sender has to begin each frame in an RTP packet of
 * its own. All else is no video: sound, tables, other protocols, IPv4 with options, fragments, RTP with extensions,
 * scrambled TS, what is malformed, and flows for which there is no room.
 *
 * A difference frame is of no use without the frames before it. By sequence numbers the program knows that packets
 * were lost before they came here: the difference frames that follow, up to the next key frame, are `broken`. What was
 * in such a packet it does not know (it may have been sound), nor whether it comes later; a node like this, which
 * reorders packets among its queues, should be the last one of its kind on a path. Nor does it know what its own queues
 * drop, as programs do not see a backlog. So a queue should have room for all frames of a group that are for it, and
 * frames on which more others depend should have a queue that is served first.
 */
#include <pergola/headers.h>
#include <pergola/program.h>

#define FLOWS 256	   /* that are followed at the same time; a power of two */
#define IDLE 5000000000ULL /* ns without a frame, after which another flow may take a flow's element */
#define MISORDER 100	   /* packets; what is later than that is a new beginning (RFC 3550, appendix A.1) */
#define TS_SIZE 188
#define TYPE_MP2T 33	   /* RTP's payload type (RFC 3551) */
#define VIDEO_STREAM 0xe0  /* stream_id of PES: 0xe0 to 0xef (ISO/IEC 13818-1, table 2-22) */

struct udp_header {
	struct port_numbers ports;
	uint16_t length;
	uint16_t checksum;
};

struct rtp_header {
	uint8_t version; /* 0x80: version 2; no padding, extension, or contributing sources */
	uint8_t type;	 /* the highest bit is the marker */
	uint16_t sequence;
	uint32_t timestamp;
	uint32_t source;
};

struct ts_header {
	uint8_t sync;
	uint8_t pid_high; /* transport_error_indicator, payload_unit_start_indicator, priority, 5 bits of the PID */
	uint8_t pid_low;
	uint8_t control; /* 2 bits of scrambling, adaptation field, payload, 4 bits of a counter */
	uint8_t adaptation_length;
	uint8_t adaptation_flags;
};

enum {
	TS_SYNC = 0x47,
	TS_ERROR = 0x80, /* in pid_high */
	TS_BEGINS = 0x40,
	TS_SCRAMBLED = 0xc0, /* in control */
	TS_ADAPTATION = 0x20,
	TS_PAYLOAD = 0x10,
	TS_RANDOM_ACCESS = 0x40, /* in adaptation_flags */
};

#define AT_IP PERGOLA_ETHERNET
#define AT_UDP (AT_IP + 20)
#define AT_RTP (AT_UDP + 8)
#define AT_TS (AT_RTP + 12)

PERGOLA_KEY {
	uint8_t frame;	/* enum frame; 3, 4, ... are the second, third, ... difference frame after a key frame */
	uint8_t broken; /* 1: of a difference frame that lacks something, or that depends on one that does */
	uint8_t protocol;
	uint8_t tos;
	uint16_t port; /* destination of TCP and UDP; of fragments 0 */
};

enum frame {
	NO_VIDEO,
	KEY_FRAME,
	FIRST_DIFFERENCE,
	LAST_DIFFERENCE = 255, /* or a later one, or of an unknown number */
};

/* Where a flow is. One word, so that a core sees it before or after another one has changed it. */
union progress {
	struct {
		uint16_t pid;	   /* of the frame that began last */
		uint16_t expected; /* sequence number of the next packet */
		uint8_t frame;	   /* as in the key */
		uint8_t broken;	   /* something was lost since the key frame began */
	};
	uint64_t word;
};

struct flow {
	uint64_t id;	   /* 0: free */
	uint64_t seen;	   /* ns */
	uint64_t progress; /* union progress */
};

PERGOLA_MEMORY(struct flow, FLOWS);

PERGOLA_COUNTERS {
	uint64_t key_frames, difference_frames, video, no_video, broken, late, no_room;
};

/* What an RTP packet is to its flow. */
enum unit { FOREIGN, BEGINS_KEY, BEGINS_DIFFERENCE, GOES_ON };

/* Whether the frame is a whole RTP packet with TS packets and nothing else. */
PERGOLA_INLINE_ bool is_mp2t(struct pergola_packet *packet)
{
	struct ipv4_header *ip = pergola_header(packet, AT_IP, struct ipv4_header);
	struct udp_header *udp = pergola_header(packet, AT_UDP, struct udp_header);
	struct rtp_header *rtp = pergola_header(packet, AT_RTP, struct rtp_header);
	uint32_t length = pergola_ntohs(ip->length), rest = length - (AT_TS - AT_IP);

	return ip->protocol == PROTOCOL_UDP && packet->length >= PERGOLA_ETHERNET + length &&
	       length >= AT_TS - AT_IP + TS_SIZE && pergola_ntohs(udp->length) == length - 20 && rest % TS_SIZE == 0 &&
	       rtp->version == 0x80 && (rtp->type & 0x7f) == TYPE_MP2T;
}

/* Looks at the first TS packet. A frame begins with the header of a PES packet: 0, 0, 1, stream_id. */
PERGOLA_INLINE_ enum unit read_ts(struct pergola_packet *packet)
{
	struct ts_header *ts = pergola_header(packet, AT_TS, struct ts_header);
	uint32_t payload = 4, flags = 0;
	uint8_t *pes;

	if (ts->sync != TS_SYNC || ts->pid_high & TS_ERROR || ts->control & TS_SCRAMBLED)
		return FOREIGN;
	if (ts->control & TS_ADAPTATION) {
		payload += 1 + ts->adaptation_length;
		flags = ts->adaptation_flags; /* of an empty field: the first byte of a PES packet, 0 */
	}
	if (!(ts->control & TS_PAYLOAD) || !(ts->pid_high & TS_BEGINS))
		return GOES_ON;
	if (payload > TS_SIZE - 4)
		return FOREIGN;
	pes = pergola_at(packet, AT_TS + payload, 4);
	if (!pes || pes[0] || pes[1] || pes[2] != 1 || (pes[3] & 0xf0) != VIDEO_STREAM)
		return GOES_ON; /* of sound, or a table: the PID says so */
	return flags & TS_RANDOM_ACCESS ? BEGINS_KEY : BEGINS_DIFFERENCE;
}

PERGOLA_INLINE_ uint64_t mix(uint64_t value)
{
	value *= 0x9e3779b97f4a7c15ULL;
	return value ^ value >> 32;
}

PERGOLA_INLINE_ uint64_t flow_id(struct pergola_packet *packet)
{
	struct ipv4_header *ip = pergola_header(packet, AT_IP, struct ipv4_header);
	struct udp_header *udp = pergola_header(packet, AT_UDP, struct udp_header);
	struct rtp_header *rtp = pergola_header(packet, AT_RTP, struct rtp_header);
	uint64_t ports = (uint64_t)udp->ports.source << 16 | udp->ports.destination;

	return mix(mix((uint64_t)ip->source << 32 | ip->destination) + (ports << 32 | rtp->source)) | 1;
}

/*
 * The element of the packet's flow; NULL: it has none. A flow gets one when a frame begins, and keeps it while frames
 * do. Two cores may take an element at once for two flows, whose frames are then numbered wrongly until one is gone.
 */
PERGOLA_INLINE_ struct flow *find_flow(struct pergola_packet *packet, enum unit unit)
{
	uint64_t id = flow_id(packet), now;
	struct flow *f = pergola_memory((id >> 8) % FLOWS);
	union progress p = { .frame = LAST_DIFFERENCE }; /* its key frame was not seen */
	struct rtp_header *rtp = pergola_header(packet, AT_RTP, struct rtp_header);

	if (!f)
		return NULL;
	if (unit == GOES_ON)
		return f->id == id ? f : NULL;
	now = pergola_time(packet);
	if (f->id != id) {
		if (f->id && now - f->seen < IDLE) {
			pergola_count(no_room);
			return NULL;
		}
		p.expected = pergola_ntohs(rtp->sequence);
		f->progress = p.word;
		f->id = id;
	}
	f->seen = now;
	return f;
}

/* Follows the flow by one packet. Says by the key what the packet belongs to. */
PERGOLA_INLINE_ void follow(struct pergola_packet *packet, struct flow *f, enum unit unit)
{
	struct ts_header *ts = pergola_header(packet, AT_TS, struct ts_header);
	struct rtp_header *rtp = pergola_header(packet, AT_RTP, struct rtp_header);
	uint16_t sequence = pergola_ntohs(rtp->sequence), pid = (ts->pid_high & 0x1f) << 8 | ts->pid_low;
	struct pergola_key *key = pergola_key(packet);
	union progress p = { .word = f->progress };
	uint16_t ahead = sequence - p.expected;

	if (ahead > 0xffff - MISORDER) { /* late, or twice: which frame it is of is not known any more */
		if (unit == GOES_ON && pid != p.pid)
			return;
		pergola_count(late);
		key->frame = unit == BEGINS_KEY ? KEY_FRAME : LAST_DIFFERENCE;
		return;
	}
	if (ahead)
		p.broken = 1;
	p.expected = sequence + 1;
	if (unit == BEGINS_KEY) {
		p.frame = KEY_FRAME;
		p.broken = 0;
		pergola_count(key_frames);
	} else if (unit == BEGINS_DIFFERENCE) {
		if (p.frame != LAST_DIFFERENCE)
			p.frame++;
		pergola_count(difference_frames);
	}
	if (unit != GOES_ON)
		p.pid = pid;
	f->progress = p.word;
	if (pid != p.pid)
		return;
	key->frame = p.frame;
	if (p.frame == KEY_FRAME || !p.broken)
		return;
	key->broken = 1;
	pergola_count(broken);
}

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header);
	struct ipv4_header *ip = pergola_header(packet, AT_IP, struct ipv4_header);
	struct pergola_key *key = pergola_key(packet);
	enum unit unit;
	struct flow *f;

	if (packet->interface != 1) {
		packet->output = 1;
		return PERGOLA_SEND;
	}
	packet->miss = PERGOLA_SEND;
	if (eth->type == pergola_htons(TYPE_IPV4)) {
		key->protocol = ip->protocol;
		key->tos = ip->tos;
		/* Neither options, nor more fragments, nor an offset. */
		if (ip->version_ihl == 0x45 && !(ip->fragment & pergola_htons(0x3fff))) {
			if (ip->protocol == PROTOCOL_TCP || ip->protocol == PROTOCOL_UDP)
				key->port = pergola_header(packet, AT_UDP, struct port_numbers)->destination;
			if (is_mp2t(packet)) {
				unit = read_ts(packet);
				f = unit == FOREIGN ? NULL : find_flow(packet, unit);
				if (f)
					follow(packet, f, unit);
			}
		}
	}
	if (key->frame == NO_VIDEO)
		pergola_count(no_video);
	else
		pergola_count(video);
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	packet->output = 2;
	return result->verdict;
}
