// Package address chooses networks and addresses from pools. It knows prefixes and names, and nothing of topologies.
package address
