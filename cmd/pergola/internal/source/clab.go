package source

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/topology/importer"
)

// clabOptions are what the importer of containerlab files gets.
func clabOptions(path string, o Options) importer.ClabOptions {
	return importer.ClabOptions{Images: o.table, Kinds: o.kind, Routing: o.Routing, Vars: o.vars,
		Root: os.Geteuid() == 0, Local: localImage, Dir: os.DirFS(filepath.Dir(path)), Env: os.LookupEnv}
}

// addImageRules puts the user's rules for images before Pergola's own.
func (o *Options) addImageRules(format importer.Format) error {
	if len(o.images)+len(o.tables) > 0 && format != importer.ClabYML {
		return ui.Usage("the file itself says it: write image: or rootfs:",
			"--image and --images are for containerlab files")
	}
	o.table = nil
	for _, rule := range o.images {
		match, what, ok := strings.Cut(rule, "=")
		if !ok || match == "" || what == "" {
			return ui.Usage("such as --image 'mylab/frr*=host'", "--image: %q is not MATCH=WHAT", rule)
		}
		r := importer.ImageRule{Match: match, Image: what}
		if what == "host" || strings.HasPrefix(what, ".") || strings.HasPrefix(what, "/") {
			r.Rootfs, r.Image = what, ""
		}
		o.table = append(o.table, r)
	}
	for _, name := range o.tables {
		data, err := read(name)
		if err != nil {
			return err
		}
		rules, found := importer.ParseImages(name, data)
		if rules == nil {
			return found
		}
		o.table = append(o.table, rules...)
	}
	o.table = append(o.table, importer.DefaultImages()...)
	return nil
}

// addKinds reads what replaces kinds of nodes; a flag comes before a table.
func (o *Options) addKinds(format importer.Format) error {
	if len(o.kinds)+len(o.ofKinds) > 0 && format != importer.ClabYML {
		return ui.Usage("", "--kind and --kinds are for containerlab files")
	}
	if len(o.ofVars) > 0 && format != importer.ClabYML {
		return ui.Usage("", "--vars is for templates of containerlab files")
	}
	o.vars = nil
	for _, name := range o.ofVars {
		data, err := read(name)
		if err != nil {
			return err
		}
		o.vars = append(o.vars, importer.VarsFile{Name: name, Data: data})
	}
	o.kind = importer.KindTable{}
	for _, name := range o.ofKinds {
		data, err := read(name)
		if err != nil {
			return err
		}
		table, found := importer.ParseKinds(name, data)
		if table == nil {
			return found
		}
		maps.Copy(o.kind, table)
	}
	for _, rule := range o.kinds {
		kind, what, ok := strings.Cut(rule, "=")
		if !ok || kind == "" {
			return ui.Usage("such as --kind nokia_srlinux=frr", "--kind: %q is not KIND=WHAT", rule)
		}
		if !slices.Contains(importer.Replacements, what) {
			return ui.Usage(ui.DidYouMean(what, "replacement", importer.Replacements),
				"--kind: kind %s cannot become %q", kind, what)
		}
		o.kind[kind] = what
	}
	return nil
}

// KindRules are values of --kind, for completion.
func KindRules() (rules []string) {
	for _, kind := range slices.Concat([]string{importer.AllKinds}, importer.ClabVendorKinds) {
		for _, what := range importer.Replacements {
			rules = append(rules, kind+"="+what)
		}
	}
	return rules
}
