# The connection plugin pergola, for Ansible: see docs/inventories.md.

DOCUMENTATION = """
name: pergola
author: The Pergola authors
short_description: Run tasks in nodes of Pergola
description:
  - Runs commands in nodes of Pergola's networks by C(pergola exec), and copies files by C(pergola cp).
  - C(pergola inspect --inventory ansible) writes inventories with this connection.
options:
  remote_addr:
    description: The node, as C(SLICE/NODE); C(NODE) where one network runs.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
      - name: delegated_vars['ansible_host']
  executable:
    description: The program.
    default: pergola
    vars:
      - name: ansible_pergola_executable
"""

import subprocess

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase

NOT_RUN = 125  # status of `pergola exec` where the command was not started


class Connection(ConnectionBase):
    """Nodes of Pergola. There is no session: each command finds its node anew."""

    transport = "pergola"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def close(self):
        self._connected = False

    def exec_command(self, cmd, in_data=None, sudoable=True):
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        flags = ["--no-stdin"] if in_data is None else []
        status, out, err = self._run(["exec", *flags, self._node(), "--", "/bin/sh", "-c", cmd], in_data)
        if status == NOT_RUN:
            raise AnsibleConnectionFailure(err.decode(errors="replace").strip())
        return status, out, err

    def put_file(self, in_path, out_path):
        super().put_file(in_path, out_path)
        self._copy(in_path, f"{self._node()}:{out_path}")

    def fetch_file(self, in_path, out_path):
        super().fetch_file(in_path, out_path)
        self._copy(f"{self._node()}:{in_path}", out_path)

    def _node(self):
        return self.get_option("remote_addr")

    def _copy(self, source, destination):
        status, _, err = self._run(["cp", source, destination], None)
        if status != 0:
            raise AnsibleError(err.decode(errors="replace").strip())

    def _run(self, words, in_data):
        program = self.get_option("executable")
        try:
            done = subprocess.run([program, *words], input=in_data, capture_output=True, check=False)
        except OSError as e:
            raise AnsibleConnectionFailure(f"run {program}: {e}") from e
        return done.returncode, done.stdout, done.stderr
