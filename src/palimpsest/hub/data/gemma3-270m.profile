# shares of a budget, by `palimpsest fit`, 4 texts, 8192 tokens
model 9a2cd578956881f5
# layer  head  share
      0     0  0.341x
      1     0  0.297x
      2     0  0.269x
      3     0  0.566x
      4     0  0.217x
      5     0  6.150x
      6     0  0.277x
      7     0  0.410x
      8     0  0.216x
      9     0  0.295x
     10     0  0.244x
     11     0  6.379x
     12     0  0.345x
     13     0  0.350x
     14     0  0.247x
     15     0  0.315x
     16     0  0.251x
     17     0  0.831x
