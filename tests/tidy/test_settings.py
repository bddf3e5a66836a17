"""A setting that nothing reads is a promise that nobody keeps."""

import ast

from lbcore.config.tree import SETTINGS
from lbcore.model.resources import RESOURCES
from tests.tidy.source_files import PACKAGES, parsed, python_files

READ_BY_NAME = {resource.weight for resource in RESOURCES}
"""The weights, which the declaration of a resource names."""


def test_setting_is_read_by_the_product() -> None:
    read = {
        node.attr
        for path in python_files(*PACKAGES)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert [key for key in SETTINGS if key.rpartition(".")[2] not in read | READ_BY_NAME] == []
