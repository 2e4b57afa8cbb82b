"""A metric of both builds.

Elapsed time is on the x axis, the steady windows are shaded, and the title holds the change with its interval.
"""

import buildcompare as bc

recordings = "data/recordings/v10.4.0-rc1/postgresql_bounded"
result = bc.compare(f"{recordings}/base.parquet", f"{recordings}/new.parquet", users=7500)
figure = result.plot("avg-api-times").figure
