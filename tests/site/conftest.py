from __future__ import annotations

import pytest

from tests.site.hospitals import make_hospitals


@pytest.fixture(scope="session")
def hospitals(tmp_path_factory):
    """Two aggregators, a coordinator and three sites with files of their own; nothing in it is changed."""
    return make_hospitals(tmp_path_factory.mktemp("hospitals"))
