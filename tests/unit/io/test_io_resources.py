from grpo_jax.io.resources import fullest_device, memory_metrics


def test_a_process_on_a_cpu_knows_its_own_peak():
    metrics = memory_metrics()
    assert set(metrics) == {"memory/host_peak_bytes"}
    # Python with JAX loaded takes more than 50 MiB; a figure in the wrong unit would be a thousandfold off.
    assert 50 * 2**20 < metrics["memory/host_peak_bytes"] < 2**40


def test_the_fullest_device_counts():
    devices = [None, {}, {"peak_bytes_in_use": 3, "bytes_limit": 10}, {"peak_bytes_in_use": 5, "bytes_limit": 8}]
    assert fullest_device(devices) == {"memory/device_peak_bytes": 5.0, "memory/device_limit_bytes": 8.0}
    assert fullest_device([{"peak_bytes_in_use": 5}]) == {"memory/device_peak_bytes": 5.0}
    assert fullest_device([None, None]) == {}
