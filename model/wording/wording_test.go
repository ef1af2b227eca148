package wording

import "testing"

func TestNearestFindsTypingErrorsAndNothingElse(t *testing.T) {
	names := []string{"washington", "denver", "seattle", "kansas-city", "a", "b"}
	for word, want := range map[string]string{
		"denvr": "denver", "Denver": "denver", "dnever": "denver", "kansas": "kansas-city", "seatle": "seattle",
		"A": "a", "london": "", "losangeles": "", "x": "", "zz": "", "": "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestNearestOfEquallyNearCandidatesIsTheFirstInOrder(t *testing.T) {
	if got := Nearest("eth9", []string{"eth3", "eth1", "eth2"}); got != "eth1" {
		t.Errorf("nearest to eth9 is %q, want eth1", got)
	}
}

func TestDidYouMeanIsEmptyWithoutACandidate(t *testing.T) {
	if got := DidYouMean("dnever", []string{"denver"}); got != "did you mean denver?" {
		t.Errorf("suggestion is %q", got)
	}
	if got := DidYouMean("london", []string{"denver"}); got != "" {
		t.Errorf("suggestion is %q, want none", got)
	}
}

func TestCount(t *testing.T) {
	for got, want := range map[string]string{
		Count(1, "node"): "1 node", Count(0, "switch"): "0 switches", Count(11, "address"): "11 addresses",
		Count(2, "mesh"): "2 meshes", Count(2, "suffix"): "2 suffixes", Count(2, "LAN"): "2 LANs",
	} {
		if got != want {
			t.Errorf("count is %q, want %q", got, want)
		}
	}
}
