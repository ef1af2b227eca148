package ui

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

func piped() (*Terminal, *bytes.Buffer, *bytes.Buffer) {
	var out, err bytes.Buffer
	return New(strings.NewReader(""), &out, &err), &out, &err
}

func TestTableInAPipeIsPlainAndHasAWordForEachColumn(t *testing.T) {
	term, out, _ := piped()
	b := &Table{Columns: []string{"NODE", "STATE", "ADDRESS"}}
	b.Row("denver", "running", "")
	b.Row("a", "", "10.0.0.1")
	term.Table(b)
	want := "NODE    STATE    ADDRESS\n" +
		"denver  running  -\n" +
		"a       -        10.0.0.1\n"
	if out.String() != want {
		t.Errorf("table is\n%q, want\n%q", out, want)
	}
}

func TestProgressInAPipeIsSparse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term, out, errs := piped()
		p := term.Progress()
		for i := range 21 {
			p.Step("bringing lab up", i, 20)
			time.Sleep(503 * time.Millisecond) // never at the same time as a tick
		}
		p.Note("still trying: %s", "something")
		p.Step("waiting", 0, 0)
		time.Sleep(40 * time.Second)
		p.Close()
		p.Step("late", 1, 1)
		want := "bringing lab up 3/20, 2.0 s\nbringing lab up 13/20, 7.0 s\n" +
			"still trying: something\nwaiting, 12 s\nwaiting, 42 s\n"
		if errs.String() != want {
			t.Errorf("progress is\n%swant\n%s", errs, want)
		}
		if out.Len() > 0 {
			t.Errorf("progress is among the results: %q", out)
		}
	})
}

func TestProgressOfShortWorkSaysNothingToAPipe(t *testing.T) {
	term, _, errs := piped()
	p := term.Progress()
	p.Step("connecting", 0, 0)
	p.Step("sending", 0, 0)
	p.Close()
	if errs.Len() > 0 {
		t.Errorf("progress wrote %q", errs)
	}
}

func TestQuietProgressSaysNothing(t *testing.T) {
	term, _, errs := piped()
	term.Quiet = true
	p := term.Progress()
	p.Step("bringing lab up", 1, 2)
	p.Note("a note")
	p.Close()
	if errs.Len() > 0 {
		t.Errorf("quiet progress wrote %q", errs)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Rate(0), ""},
		{Rate(64_000), "64 kbit/s"},
		{Rate(9_953_280_000), "9.953 Gbit/s"},
		{Delay(12500 * time.Microsecond), "12.5 ms"},
		{Delay(340 * time.Nanosecond), "340 ns"},
		{Delay(1500 * time.Millisecond), "1.5 s"},
		{Elapsed(3140 * time.Millisecond), "3.1 s"},
		{Elapsed(42 * time.Second), "42 s"},
		{Elapsed(185 * time.Second), "3 min 5 s"},
		{Shape(slice.Shape{}), ""},
		{Shape(slice.Shape{Rate: 1e7, Classes: []slice.Class{{Name: "voice"}, {Name: "other"}}}), "10 Mbit/s, classes voice other"},
		{Shape(slice.Shape{Rate: 1e7, Delay: 5e6, Jitter: 1e6, Loss: 0.1, Queue: 1}),
			"10 Mbit/s, 5 ms ± 1 ms, loss 0.1 %, queue 1 frame"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestAgeHasOneUnit(t *testing.T) {
	now := time.Unix(1e9, 0)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 119 * time.Second: "119s", 119 * time.Minute: "119m", 47 * time.Hour: "47h",
		72 * time.Hour: "3d",
	} {
		if got := Age(now.Add(-d), now); got != want {
			t.Errorf("age %s is %q, want %q", d, got, want)
		}
	}
	if got := Age(time.Time{}, now); got != "" {
		t.Errorf("age of no time is %q", got)
	}
}

func TestFailSaysWhatAndWhatToDo(t *testing.T) {
	term, _, errs := piped()
	err := fmt.Errorf("down: %w", Advise(errors.New("network x is not running"), "did you mean %s?\nor not", "y"))
	term.Fail(err)
	want := "error: down: network x is not running\n       did you mean y?\n       or not\n"
	if errs.String() != want {
		t.Errorf("failure is\n%swant\n%s", errs, want)
	}
	if Code(err) != ExitFailed {
		t.Errorf("status is %d", Code(err))
	}
}

func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{Exit(0), 0},
		{Exit(7), 7},
		{Usage("", "x"), 2},
		{WithCode(errors.New("x"), 2), 2},
		{WithCode(Interrupted(""), 2), 130},
		{WithCode(nil, 2), 0},
		{Advise(Usage("", "x"), "do"), 2},
	} {
		if got := Code(c.err); got != c.want {
			t.Errorf("status of %v is %d, want %d", c.err, got, c.want)
		}
	}
}
