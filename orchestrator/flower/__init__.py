"""SafeGNN as a Flower app: Flower carries the messages between coordinator and sites, and sees ciphertexts.

Needs the extra `safegnn[flower]`. Nothing else of the package imports this.
"""
