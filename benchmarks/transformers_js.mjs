// Runs folders in transformers.js: node transformers_js.mjs CASES.json, with the package where node finds it.
//
// A case is {folder, class, dtype, inputs, options}; inputs are {name: {type, dims, data}}.  Without options the model is
// called, otherwise it generates.  The results are one JSON array on stdout.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [cases, folder] = [JSON.parse(readFileSync(process.argv[2])), process.argv[3]];
const require = createRequire(pathToFileURL(folder + '/'));
const transformers = require('@huggingface/transformers');
transformers.env.allowRemoteModels = false;
transformers.env.localModelPath = '/';
const ARRAYS = { int64: (data) => BigInt64Array.from(data.map(BigInt)), float32: (data) => Float32Array.from(data) };

const results = [];
for (const one of cases) {
    try {
        const kind = transformers[one.class];
        const model = await kind.from_pretrained(one.folder, { dtype: one.dtype, local_files_only: true });
        const inputs = {};
        for (const [name, item] of Object.entries(one.inputs)) {
            inputs[name] = new transformers.Tensor(item.type, ARRAYS[item.type](item.data), item.dims);
        }
        if (one.options) {
            const found = await model.generate({ ...inputs, ...one.options });
            results.push({ tokens: found.tolist().map((row) => row.map(Number)) });
        } else {
            const found = await model(inputs);
            const outputs = {};
            for (const [name, item] of Object.entries(found)) {
                if (item?.dims) outputs[name] = { dims: item.dims, data: Array.from(item.data, Number) };
            }
            results.push({ outputs });
        }
        await model.dispose();
    } catch (error) {
        results.push({ error: String(error?.stack ?? error).slice(0, 1500) });
    }
}
console.log('RESULTS' + JSON.stringify(results));
