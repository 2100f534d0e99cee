"""A session as a coordinator has it, and what it cannot see: the servers' private keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.agreement.from_settings import plan_of
from orchestrator.client.sealing import SealingEncoder
from orchestrator.secure_sum import Sizes
from orchestrator.site.messages import Train, Upload
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place
from orchestrator.wire.upload import SIGNATURE_BYTES, Layout, unpack_upload


class Session:
    """What a coordinator has in hand: the servers' private keys too, to look into what it carries."""

    def __init__(self, hospitals, config, run=b"r" * 16, **changed):
        self.hospitals, self.config, self.plan = hospitals, config, plan_of(config)
        self.keypairs = (Keypair(), Keypair())
        self.terms = hospitals.terms(config, **changed)
        keys = (self.keypairs[0].public_key, self.keypairs[1].public_key)
        self.offer = hospitals.offer(self.terms, run=run, keys=keys)
        self.model = np.linspace(-0.1, 0.1, self.terms.length)

    @property
    def encoder(self):
        """As an engine has it, of a cohort of three."""
        parameters, keys = self.plan.parameters_of(3, self.plan.clip_norm), self.offer.keys
        offer = self.offer.to_bytes()
        return SealingEncoder(self.offer.run, keys, parameters, self.plan.vectors, self.plan.clip_norm, offer=offer)

    def train(self, round, **changed):
        fields = {"slot": 0, "cohort": 3, "clip_norm": self.plan.clip_norm, "model": self.model.astype("<f8").tobytes()}
        return Train(self.offer.to_bytes(), round, **{**fields, **changed})

    def update(self, reply, round, client=0, slot=0):
        """The plaintext of an upload, float64 (d,), and both messages with their signatures."""
        assert isinstance(reply, Upload), reply
        parameters = self.plan.parameters_of(3, self.plan.clip_norm)
        layout = Layout.of_round(parameters, self.plan.program, len(self.model), False)
        halves, signed = [], []
        for server in (0, 1):
            message = self.keypairs[server].open(reply.envelopes[server])
            signed.append((message[:-SIGNATURE_BYTES], message[-SIGNATURE_BYTES:]))
            header = Place(round, slot, client).header(self.offer.run, server)
            halves.append(unpack_upload(signed[-1][0], header, layout).update.share)
        return self.plan.vectors.decode_update(halves[0] + halves[1]), signed


def sum_offer(session, described, **changed):
    fields = {"length": described.length(Sizes(0, 5, 2, 2, 3)), "sum": described.name, **changed}
    keys = (session.keypairs[0].public_key, session.keypairs[1].public_key)
    return session.hospitals.offer(replace(session.terms, **fields), run=b"q" * 16, keys=keys)
