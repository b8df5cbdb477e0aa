"""`./dev python -m tests.schema` writes the checked-in files anew."""

from tests.schema.files import current

for path, text in current().items():
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
