package program

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestReachOfProgramsIsFound(t *testing.T) {
	const key = "PERGOLA_KEY { uint32_t a, b, c, d, e; };\n"
	for name, c := range map[string]struct {
		text string
		want reach
	}{
		"nothing":       {"PERGOLA_PARSE(packet) { return packet->interface; }", reach{0, 64}},
		"one byte":      {"PERGOLA_PARSE(packet) { return *pergola_header(packet, 0, uint8_t); }", reach{14, 64}},
		"far":           {"PERGOLA_PARSE(packet) { return *pergola_header(packet, 100, uint32_t); }", reach{104, 64}},
		"written":       {"PERGOLA_PARSE(packet) { *pergola_header(packet, 40, uint16_t) = 1; return 2; }", reach{42, 64}},
		"before":        {"PERGOLA_PARSE(packet) { *pergola_header(packet, -4, uint32_t) = 1; return 2; }", reach{0, 64}},
		"short key":     {"PERGOLA_KEY { uint16_t a; };\nPERGOLA_PARSE(packet) { return 1; }", reach{0, 16}},
		"middle key":    {key + "PERGOLA_PARSE(packet) { pergola_key(packet)->a = 1; return 1; }", reach{0, 32}},
		"behind key":    {key + "PERGOLA_PARSE(packet) { packet->key[40] = 1; return 1; }", reach{0, 41}},
		"computed":      {"PERGOLA_PARSE(packet) {\nuint8_t *p = pergola_at(packet, packet->interface, 1);\nreturn p ? *p : 0; }", all},
		"moved":         {"PERGOLA_PARSE(packet) { return pergola_shrink(packet, 4) ? 2 : 0; }", all},
		"in a loop":     {"PERGOLA_PARSE(packet) {\nuint8_t *p = pergola_header(packet, 14, uint8_t);\n#pragma clang loop unroll(disable)\nfor (uint32_t i = 0; i < 9; i++) {\nPERGOLA_OPAQUE_(p);\n*p++ = 1;\n}\nreturn 2; }", all},
		"in a function": {"static __attribute__((noinline)) int f(uint8_t *p) { return p[9]; }\nPERGOLA_PARSE(packet) { return f(pergola_header(packet, 20, uint8_t)); }", reach{30, 64}},
		"in format":     {"PERGOLA_PARSE(packet) { return 1; }\nPERGOLA_FORMAT(packet, result) {\n*pergola_header(packet, 20, uint8_t) = result->arguments[0]; return 2; }", reach{21, 64}},
	} {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join(t.TempDir(), "x.c")
			text := "#include <pergola/program.h>\n" + c.text + "\n"
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if o := build(t, source); o.reach != c.want {
				t.Errorf("reach is %+v, want %+v", o.reach, c.want)
			}
		})
	}
}

// What a program has not looked at is there all the same, where the frame begins later.
func TestShorterFramesAreWholeWhereTheProgramSawNothing(t *testing.T) {
	source := filepath.Join(t.TempDir(), "x.c")
	text := "#include <pergola/program.h>\nPERGOLA_PARSE(packet) { return pergola_shrink(packet, 40) ? 2 : 0; }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := load(t, build(t, source))
	frame := udp4(t, "198.51.100.7", 9, 300)
	for _, hook := range Hooks {
		if o := run(t, p, hook, Frame{Data: frame, Interface: 1}); !bytes.Equal(o.Data, frame[40:]) {
			t.Errorf("%s: %+v: %x", hook, o, o.Data)
		}
	}
}
