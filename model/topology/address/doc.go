// Package address chooses networks and addresses from pools. Its inputs are prefixes and names, not topologies.
package address
