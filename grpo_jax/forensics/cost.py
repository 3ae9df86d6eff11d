"""What a run costs: rent and energy of its accelerators."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cost:
    """Rent and energy of some accelerators over some time.

    Attributes:
        gpus: Accelerators.
        hours: Wall time that they are rented.
        price_per_gpu_hour: Dollars.
        utilisation: Share of the rented time in which they work; idle ones are paid for and draw no power here.
        watts_per_gpu: What one draws while it works.
        pue: Power usage effectiveness: what the building draws over what the machines draw.
        dollars_per_kwh: Price of energy; 0 where rent includes it.
    """

    gpus: int
    hours: float
    price_per_gpu_hour: float
    utilisation: float = 1.0
    watts_per_gpu: float = 0.0
    pue: float = 1.0
    dollars_per_kwh: float = 0.0

    @property
    def dollars_per_hour(self) -> float:
        """Rent per hour of wall time."""
        return self.gpus * self.price_per_gpu_hour

    @property
    def gpu_hours(self) -> float:
        """Rented hours of all accelerators."""
        return self.gpus * self.hours

    @property
    def dollars_rent(self) -> float:
        """Rent."""
        return self.dollars_per_hour * self.hours

    @property
    def kilowatt_hours(self) -> float:
        """Energy, the building's share included."""
        return self.gpu_hours * self.utilisation * self.watts_per_gpu * self.pue / 1000

    @property
    def dollars_energy(self) -> float:
        """Price of the energy."""
        return self.kilowatt_hours * self.dollars_per_kwh

    @property
    def dollars_total(self) -> float:
        """Rent and energy."""
        return self.dollars_rent + self.dollars_energy

    @property
    def dollars_per_useful_gpu_hour(self) -> float:
        """Everything that is paid, over the hours in which accelerators work."""
        return self.dollars_total / (self.gpu_hours * self.utilisation)

    def figures(self) -> dict[str, int | float]:
        """All of it by name, as tables and JSON show it."""
        names = (
            "gpus",
            "hours",
            "gpu_hours",
            "dollars_per_hour",
            "dollars_rent",
            "kilowatt_hours",
            "dollars_energy",
            "dollars_total",
            "dollars_per_useful_gpu_hour",
        )
        return {name: getattr(self, name) for name in names}
