"""The arithmetic of one aggregation round, written once for float64, secret shares and MP-SPDZ."""
