"""Connected users of an unbounded test.

Users are added until the server degrades. The new build warms its caches more slowly: its ramp starts later, but both
reach about the same number of users.
"""

import buildcompare as bc

recordings = "data/recordings/v10.4.0-rc1/postgresql_unbounded"
result = bc.compare(f"{recordings}/base.parquet", f"{recordings}/new.parquet", type="unbounded", users=20000)
figure = result.plot("number-of-connected-devices").figure
