"""FedSage+ (NeurIPS 2021): clients that mend their graphs with generated neighbours."""
