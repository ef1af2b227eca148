//go:build ignore
// (for the go command, which takes no C file beside main.go)

/*
 * The slow path of a post office (../programs/post.c): it knows where areas are, and the packet program learns it.
 *
 *	cc -O2 -o slow slow.c -I include		(pergola program headers include)
 *	slow AREA=INTERFACE...
 *
 * A letter to an area for which there is no filter is punted. It gets a filter, and enters the program again; those
 * that follow are not punted any more. main.go and slow.py do the same.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <pergola/slow.h>

#define LETTER 0x88b5 /* the type of their Ethernet frames */

static int connect_to_agent(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/run/pergola/node.sock"};
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (s < 0)
		err(1, "socket");
	while (connect(s, (struct sockaddr *)&to, sizeof(to))) {
		if (errno != ENOENT && errno != ECONNREFUSED)
			err(1, "connect to %s", to.sun_path);
		usleep(100000); /* the agent listens soon */
	}
	return s;
}

/* Makes a request. Returns the file descriptor that came with the answer; -1: none did. */
static int ask(const char *request)
{
	static int s = -1;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} rights;
	static char answer[1 << 18];
	struct iovec data = {answer, sizeof(answer) - 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &rights,
			   .msg_controllen = sizeof(rights)};
	struct cmsghdr *c;
	ssize_t n;
	int fd = -1;

	while (s < 0 || send(s, request, strlen(request), MSG_NOSIGNAL) < 0 ||
	       (n = recvmsg(s, &m, MSG_CMSG_CLOEXEC)) <= 0) { /* the agent was restarted */
		if (s >= 0)
			close(s);
		s = connect_to_agent();
		m.msg_controllen = sizeof(rights); /* recvmsg() writes what came */
	}
	answer[n] = '\0';
	if (strstr(answer, "\"error\":") && !strstr(answer, "\"code\":\"exists\"")) /* of two letters, the first one's filter is there */
		errx(1, "%s: %s", request, answer);
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

int main(int argc, char **argv)
{
	static struct {
		struct pergola_slow head;
		uint8_t frame[1 << 16];
	} punted;
	int interfaces[256] = {}, area, interface, slow;
	char request[200];
	uint16_t type;
	ssize_t n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 1; i < argc; i++) {
		if (sscanf(argv[i], "%d=%d", &area, &interface) != 2 || area < 0 || area > 255)
			errx(2, "%s is not AREA=INTERFACE", argv[i]);
		interfaces[area] = interface;
	}
	ask("{\"id\": 1, \"do\": \"replace_filters\"}");
	slow = ask("{\"id\": 2, \"do\": \"slow_path\"}");
	while ((n = read(slow, &punted, sizeof(punted))) >= (ssize_t)sizeof(punted.head) + 14) {
		memcpy(&type, punted.frame + 12, sizeof(type));
		if (ntohs(type) != LETTER)
			continue;
		area = punted.head.key[0];
		if (!interfaces[area]) {
			printf("nobody knows where area %d is\n", area);
			continue;
		}
		snprintf(request, sizeof(request),
			 "{\"id\": 3, \"do\": \"change_filters\", \"insert\": [\"area=%d -> send %d\"]}", area,
			 interfaces[area]);
		ask(request);
		printf("area %d is at interface %d\n", area, interfaces[area]);
		punted.head.kind = PERGOLA_SLOW_ENTER;
		if (write(slow, &punted, n) != n)
			err(1, "write to the slow path");
	}
	err(1, "read from the slow path");
}
