# shares of a budget, by `palimpsest heads --profile --tokens 4096 --sinks 4 --recent 16 --keep 0.0625`
# layer  head  share
      0     0  0.205x
      0     1  0.220x
      1     0  1.024x
      1     1  2.622x
      2     0  1.094x
      2     1  1.307x
      3     0  0.984x
      3     1  0.803x
      4     0  0.843x
      4     1  0.835x
      5     0  0.945x
      5     1  1.118x
