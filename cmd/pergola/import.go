package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
)

func newImport(a *app) *cobra.Command {
	var o source.Options
	var out string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Turn a containerlab or GraphML file into a topology file",
		Long: `Read a containerlab file (.clab.yml) or a graph of the Internet Topology Zoo (.graphml) and
write the equivalent topology file, for editing. ` + "`up`" + ` also takes such files directly.`,
		Example: `  pergola import abilene.graphml --daemon bird --routing ospf --delay -o abilene.yaml
  pergola import lab.clab.yml > pergola.yaml
  pergola import lab.clab.yml --kind nokia_srlinux=frr -o pergola.yaml`,
		Args: arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			src, err := source.Read(args[0], o)
			if err != nil {
				return err
			}
			a.warn(src.Warnings)
			defer a.leftOut(src.LeftOut)
			text, err := src.Encode(a.JSON)
			if err != nil {
				return err
			}
			if out == "" || out == "-" {
				_, err = a.Out.Write(text)
				return err
			}
			if err := os.WriteFile(out, text, 0o644); err != nil {
				return fmt.Errorf("write the topology: %w", err)
			}
			a.Say("%s written: `pergola up %[1]s` brings it up", out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to `FILE` in place of standard output")
	cmd.Flags().StringVar(&o.Name, "name", "", "name of the network, in place of the file's")
	o.AddImportFlags(cmd.Flags())
	completeImportFlags(cmd)
	return cmd
}
