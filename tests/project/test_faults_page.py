"""docs/faults.md is what the catalogue and the files of the faults say."""

from chaos import catalogue, fault_table


def test_the_page_is_what_the_files_say() -> None:
    assert fault_table.PAGE.read_text() == fault_table.page(), "python -m chaos faults --docs writes the page anew"


def test_each_kind_has_a_line_with_its_stages_and_its_declaration() -> None:
    lines = fault_table.table().splitlines()[2:]
    assert len(lines) == len(catalogue.KINDS)
    for kind, line in zip(catalogue.KINDS.values(), lines, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == len(fault_table.COLUMNS) and all(cells)
        assert (cells[0], cells[3], cells[5]) == (f"`{kind.name}`", kind.attacks, str(kind.seconds))
