import pytest

from mpc_programs.lockstep import exchange, gather, run, run_locally, run_pair


async def chain(payloads):
    return [await exchange(payload) for payload in payloads]


def test_chains_share_rounds_and_get_their_own_answers():
    sent = []

    def swap(payload):
        sent.append(payload)
        return payload.upper()

    async def program():
        return await gather(chain([b"a", b"bc", b"d"]), chain([b"xyz"]), chain([]))

    assert run(program(), swap) == ([b"A", b"BC", b"D"], [b"XYZ"], [])
    assert sent == [b"axyz", b"bc", b"d"]


def test_gather_nests():
    rounds = []

    async def inner():
        return await gather(chain([b"1", b"2"]), chain([b"3"]))

    async def program():
        return await gather(inner(), chain([b"4"]))

    result = run(program(), lambda payload: rounds.append(payload) or payload)
    assert result == (([b"1", b"2"], [b"3"]), [b"4"])
    assert rounds == [b"134", b"2"]


def test_an_answer_of_another_length_is_refused():
    with pytest.raises(ValueError, match="expected 2 bytes"):
        run(chain([b"ab"]), lambda payload: b"abc")

    async def program():
        return await gather(chain([b"ab"]), chain([b"c"]))

    with pytest.raises(ValueError, match="expected 3 bytes"):
        run(program(), lambda payload: b"ab")


def test_a_local_backend_must_not_exchange():
    with pytest.raises(RuntimeError, match="no peer"):
        run_locally(chain([b"a"]))


def test_both_sides_in_one_process():
    assert run_pair(chain([b"a", b"bc"]), chain([b"x", b"yz"])) == (([b"x", b"yz"], [b"a", b"bc"]), 2, 3)
    assert run_pair(chain([]), chain([])) == (([], []), 0, 0)
    for other in ([], [b"x"], [b"x", b"y"]):
        with pytest.raises((RuntimeError, ValueError)):
            run_pair(chain([b"a", b"bc"]), chain(other))
