#!/bin/sh
# check.sh [FILE]: brings a network up, runs its checks, and takes it down, whatever came of them. The results are in
# result.xml, as JUnit has them. The exit status is that of the first step that failed.
pergola up --wait --timeout 90s "$@" && pergola check --junit result.xml
status=$?
pergola down
exit $status
