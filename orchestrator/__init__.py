"""SafeGNN: fair and private federated graph neural networks on two-server secret shares."""
