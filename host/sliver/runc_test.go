package sliver

import "testing"

func TestRuncThatLetsContainersOutIsRefused(t *testing.T) {
	for said, want := range map[string]bool{
		"runc version 1.1.11\ncommit: v1.1.11-0-g4bccb38c\nspec: 1.0.2-dev\n":    true,
		"runc version 1.0.0~rc93+ds1\ncommit: 1.0.0~rc93+ds1-5+deb11u2\n":        true,
		"runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1\nspec: 1.0.2-dev\n":         true,
		"runc version 1.1.7-0ubuntu1~22.04.1\nspec: 1.0.2-dev\n":                 true,
		"runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n": false,
		"runc version 1.0.0~rc93+ds1\ncommit: 1.0.0~rc93+ds1-5+deb11u3\n":        false,
		"runc version 1.1.7-0ubuntu1~22.04.2\nspec: 1.0.2-dev\n":                 false,
		"runc version 1.1.12\ncommit: v1.1.12-0-g51d5e946\n":                     false,
		"runc version 1.3.0-rc.1\n":                                              false,
		"runc version 2.0.0\n":                                                   false,
		"youki version 0.5.3\n":                                                  false,
	} {
		if version, unsafe := unsafeRunc(said); unsafe != want {
			t.Errorf("%q is runc %q: unsafe %v, want %v", said, version, unsafe, want)
		}
	}
}
