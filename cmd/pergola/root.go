package main

//go:generate go test -count=1 -run "^Test(ReferenceIsCurrent|PicturesOfExamplesAreDrawn)$" . -update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/wording"
)

// app is what all verbs share: where to write, and which server to ask.
type app struct {
	*ui.Terminal
	args    []string // the command line
	usual   places   // of the server that commands are about, unless --socket names another
	socket  string
	noColor bool
	changes bool // the command changes networks that run
}

// run carries out one command line and gives its exit status.
func run(ctx context.Context, args []string, t *ui.Terminal) int {
	a := &app{Terminal: t, args: args}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(t.In)
	root.SetOut(t.Out)
	root.SetErr(t.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = t.Lost()
	}
	if err != nil && ctx.Err() != nil && ui.Code(err) != ui.ExitInterrupted {
		err = ui.Interrupted("")
	}
	err = explain(a.faults(a.ended(err)))
	a.Fail(err)
	return ui.Code(err)
}

const (
	groupNetworks = "networks"
	groupNodes    = "nodes"
	groupFiles    = "files"
	groupServer   = "server"
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "pergola",
		Short: "Virtual networks of unmodified routers",
		Long: `Pergola starts a network of unmodified routers from one file, keeps it as the file says, and
removes all of it when it is taken down.

Where a command takes a NETWORK and none is named, it is the only one that runs, or the one that
the topology file in the current directory describes.

Exit status: 0 done; 1 failed, or a check does not hold; 2 the command line is wrong, or a check
could not be carried out; 3 there was nothing to check; 130 interrupted. exec and shell pass on the
status of the command, or 125 if it could not be started.

Root has the machine's server. Other users have one of their own, which needs no rights of root and
has no fast path; those who may use the machine's (group pergola) have that one, unless their own
runs.

Environment: PERGOLA_SOCKET is the default of --socket, PERGOLA_TOKEN of --token; NO_COLOR
switches colour off.`,
		Example: `  pergola up abilene.graphml --daemon frr --routing ospf --wait
  pergola exec denver -- ip route
  pergola down`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cobra.ArbitraryArgs,
		RunE:              group,
		PersistentPreRun:  func(cmd *cobra.Command, _ []string) { a.prepare(cmd) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Version:           ownVersion(),
	}
	root.SetVersionTemplate("pergola {{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupNetworks, Title: "Networks:"},
		&cobra.Group{ID: groupNodes, Title: "Nodes and links:"},
		&cobra.Group{ID: groupFiles, Title: "Files:"},
		&cobra.Group{ID: groupServer, Title: "Servers and machines:"})
	a.globalFlags(root.PersistentFlags())
	root.InitDefaultVersionFlag() // after those, of which one is -v
	root.Flags().Lookup("version").Usage = "show the version, as the command version does"
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommandGroupID(groupServer)

	addTo(root, groupNetworks, newUp(a), changesNetworks(newDown(a)), newLs(a), newInspect(a), newTop(a),
		newWait(a), newCheck(a), newVerify(a), newSave(a), newEvents(a))
	addTo(root, groupNodes, changesNetworks(newExec(a)), changesNetworks(newShell(a)), changesNetworks(newCp(a)),
		newLogs(a),
		newNode(a), newRestart(a), newLink(a), newLSP(a), newFilter(a),
		newCapture(a))
	addTo(root, groupFiles, newValidate(a), newImport(a), newGraph(a), newSchema(a), newProgram(a))
	addTo(root, groupServer, newServer(a), newAgent(a), newToken(a), newHost(a), newReserve(a), newStatus(a),
		newBench(a), newPrune(a), newDev(a), newVersion(a), newCompletion(a), newWatchdog(a), newHold())
	helpOf(root)
	completeFlags(root)
	return root
}

// helpOf makes `help WORD` an error where there is no such verb: cobra's own shows the help of all in its place.
func helpOf(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Run, c.RunE = nil, func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && about.HasAvailableSubCommands() {
				return group(about, rest)
			}
			return about.Help()
		}
	}
}

func addTo(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

func (a *app) globalFlags(f *pflag.FlagSet) {
	a.usual = usualPlaces()
	socket := os.Getenv("PERGOLA_SOCKET")
	if socket == "" {
		socket = a.usual.socket
	}
	f.StringVar(&a.socket, "socket", socket, "`PATH` of the server's unix socket")
	f.Lookup("socket").DefValue = machinesPlaces.socket
	f.BoolVar(&a.JSON, "json", false, "write the result as JSON")
	f.BoolVarP(&a.Quiet, "quiet", "q", false, "write results and errors only")
	f.BoolVarP(&a.Verbose, "verbose", "v", false, "write every step")
	f.BoolVar(&a.noColor, "no-color", false, "write without colour")
}

// prepare applies the global flags.
func (a *app) prepare(cmd *cobra.Command) {
	if a.noColor {
		a.SetColor(false)
	}
	a.changes = cmd.Annotations[changing] != ""
}

// group is the action of a command that only holds others: help, or an error about a verb that does not exist.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	do := "see `" + cmd.CommandPath() + " --help`"
	if near := meant(cmd, args[0]); near != "" {
		do = "did you mean `" + cmd.CommandPath() + " " + near + "`?\n" + do
	}
	return ui.Usage(do, "%s has no command %q", cmd.CommandPath(), args[0])
}

// otherTools maps verbs of other tools to those that do the same here.
var otherTools = map[string]string{
	"ssh": "shell", "console": "shell", "connect": "shell", "attach": "shell", "bash": "shell", "vtysh": "shell",
	"ping": "exec", "traceroute": "exec", "run": "exec", "tcpdump": "capture", "wireshark": "capture",
	"show": "inspect", "map": "graph", "draw": "graph", "create": "up", "delete": "down", "remove": "down",
	"rm": "down", "test": "check", "copy": "cp", "scp": "cp",
}

// meant is the verb below cmd that a user meant by a word: another tool's verb, one that stands a level deeper, or
// one misspelt; or "".
func meant(cmd *cobra.Command, word string) string {
	if verb := otherTools[word]; verb != "" && !cmd.HasParent() {
		return verb
	}
	var names []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		names = append(names, c.Name())
		for _, below := range c.Commands() {
			if below.Name() == word {
				return c.Name() + " " + word
			}
		}
	}
	return wording.Nearest(word, names)
}

// flagError makes an error in a flag a usage error that names the flag that was meant.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasAvailableSubCommands() {
		return group(cmd, words) // a misspelt verb knows none of the flags that the right one has
	}
	do := "see `" + cmd.CommandPath() + " --help`"
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return invalidValue(invalid, do)
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var flags []string
		collect := func(f *pflag.Flag) {
			if !f.Hidden {
				flags = append(flags, f.Name)
			}
		}
		cmd.Flags().VisitAll(collect)
		cmd.InheritedFlags().VisitAll(collect)
		name := unknown.GetSpecifiedName()
		if near := wording.Nearest(name, flags); near != "" && len(name) > 1 {
			do = "did you mean --" + near + "?\n" + do
		}
	}
	return ui.Usage(do, "%s: %w", cmd.CommandPath(), err)
}

// invalidValue words a value that is not of its flag's type: pflag gives the words of Go's parsers.
func invalidValue(err *pflag.InvalidValueError, see string) error {
	name, value := err.GetFlag().Name, err.GetValue()
	switch kind := err.GetFlag().Value.Type(); {
	case kind == "duration":
		return ui.Usage("write a number and a unit, such as 30s or 2m\n"+see,
			"--%s: %q is not a time", name, value)
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return ui.Usage(see, "--%s: %q is not a whole number", name, value)
	}
	return ui.Usage(see, "--%s: %w", name, err)
}

// arguments checks the number of arguments: at least least, at most most (-1: any number). The words of the usage
// line say what is missing.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		see := "see `" + cmd.CommandPath() + " --help`"
		switch {
		case len(args) < least:
			return ui.Usage(see, "%s: %s is missing: usage is `%s`", cmd.CommandPath(),
				missing(cmd, len(args)), cmd.UseLine())
		case most >= 0 && len(args) > most:
			return ui.Usage(see, "%s: %q is one argument too many: usage is `%s`", cmd.CommandPath(),
				args[most], cmd.UseLine())
		}
		return nil
	}
}

// missing is the word of the usage line for the argument with number n.
func missing(cmd *cobra.Command, n int) string {
	words := strings.Fields(cmd.Use)[1:]
	if n < len(words) {
		return strings.Trim(words[n], "[].")
	}
	return fmt.Sprintf("argument %d", n+1)
}
