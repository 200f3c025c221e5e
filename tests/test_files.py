"""Is an output that exists left alone, unless somebody says otherwise?"""

import pytest

from logo_ssl.errors import UserError
from logo_ssl.files import check_output


def test_an_output_that_exists_is_replaced_only_with_overwrite(tmp_path):
    file = tmp_path / "features.npz"
    check_output(file)
    file.write_text("precious")
    with pytest.raises(UserError, match=r"features\.npz exists; add --overwrite"):
        check_output(file)
    check_output(file, overwrite=True)
    assert file.read_text() == "precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["features.npz"]


def test_folders_of_an_output_need_not_exist_yet(tmp_path):
    check_output(tmp_path / "new" / "folder" / "x.json")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("out", [".", "file/x.json"], ids=["folder", "parent a file"])
def test_what_cannot_be_written_is_refused_even_with_overwrite(out, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError):
        check_output(tmp_path / out, overwrite=True)
