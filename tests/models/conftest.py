"""The markers that transformers' own tests use."""

SUITE_MARKERS = (
    "accelerate_tests flash_attn_3_test flash_attn_4_test flash_attn_test fp8 generate is_training_test torch_compile_test "
    "torch_export_test"
).split()


def pytest_configure(config):
    for marker in SUITE_MARKERS:
        config.addinivalue_line("markers", f"{marker}: a kind of test of transformers' own suite")
